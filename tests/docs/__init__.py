"""The pages: their reference tables are made from the code, their blocks run, and their links lead somewhere."""
