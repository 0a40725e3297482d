"""State for others: which tables can be asked, what keys and values look like in JSON, and what is committed of them."""
