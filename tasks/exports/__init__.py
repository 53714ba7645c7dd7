"""Versions in the forms that trainers read."""
