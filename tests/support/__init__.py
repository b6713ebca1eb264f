"""What tests share: a scripted upstream over real sockets, replies to script, a running proxy."""
