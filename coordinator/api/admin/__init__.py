"""Admin routes: pause, sleep, weights, adapters, and the state of the fleet."""
