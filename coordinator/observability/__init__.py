"""What is told about requests and the fleet."""
