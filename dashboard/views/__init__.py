"""The pages: each has one function that draws it."""
