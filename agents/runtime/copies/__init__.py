"""The copies of tables that a worker keeps for all of its tasks, each of one topic."""
