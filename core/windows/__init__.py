"""Windows over time: which windows a row belongs to, when they close, which rows are late, and the keys that windows are stored under."""
