"""How closely each attention approximates what it stands for, by its budget."""
