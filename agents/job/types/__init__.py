"""What steps are made of: windows, aggregates, event times, the schemas of tables, and checks of what users give."""
