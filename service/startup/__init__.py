"""From settings to a checked, running deployment."""
