"""What a task stores: its checkpoints, the changes of its tables, and the rows of its control table, as bytes."""
