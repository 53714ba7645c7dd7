"""Export versions in trainers' formats."""
