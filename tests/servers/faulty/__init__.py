"""A server that answers wrongly in every way of a catalogue, byte by byte over a bare socket."""
