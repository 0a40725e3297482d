"""Where records enter a task: chunks decoded into rows or columns, with their keys and event times."""
