"""What input from outside may be: tables in CSV, and the largest sizes and times that are accepted."""
