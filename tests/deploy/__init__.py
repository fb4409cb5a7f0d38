"""How tokenwire is deployed: chart, images, and what happens while pods are replaced."""
