"""Real processes, real faults; then every record is accounted for."""
