"""What is made of the code for its documentation. No part of the package."""
