"""What is made from records for people who have none of the kit: the comment, the comparison, the index."""
