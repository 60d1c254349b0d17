"""Debates: several agents answer, criticise and conclude."""
