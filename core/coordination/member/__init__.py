"""What a worker must do, given the job state."""
