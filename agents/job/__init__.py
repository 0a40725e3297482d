"""What users declare: steps, tables, aggregates, actors and settings; and the graph and plans that follow from it. Nothing here runs."""
