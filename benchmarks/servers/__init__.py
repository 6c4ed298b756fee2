"""Server processes: start, wait for the first answer, watch memory and processor time, stop."""
