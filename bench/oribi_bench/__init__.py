"""What bench/run is made of: a module per noun, standard library only."""
