"""What users declare: steps, tables, aggregates, actors, settings, and what they come to. Nothing here runs."""
