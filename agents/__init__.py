"""Everything with side effects: Faust, Kafka, disk, clock, HTTP and the command line. It carries out what `core` decides."""
