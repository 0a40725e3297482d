"""The life of headgate: Faust, Kafka, disk, clock, HTTP and the command line. It executes what `core` decides."""
