"""Routes that steer the fleet: one module for each family of contracts."""
