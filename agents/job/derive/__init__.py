"""What follows from the steps: columns, fields, ranges, and the graph that `core` checks."""
