"""Tests of the deployment: chart, images, and rolling updates."""
