"""What a worker says of itself and of its job, as values and as metrics."""
