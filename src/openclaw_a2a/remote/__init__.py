"""The outbound half: agents find, call and follow remote A2A agents through one tool."""
