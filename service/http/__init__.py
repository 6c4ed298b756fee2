"""HTTP: routes, requests, answers and the server that speaks it."""
