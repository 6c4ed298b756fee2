"""From text to token ids and windows, and from windows back to one answer."""
