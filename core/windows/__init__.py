"""Windows over time: which ones a row belongs to, when they close, what is late, and under which keys they are stored."""
