"""The commits of a worker: who owns the producer of an incarnation, and in which order a commit goes."""
