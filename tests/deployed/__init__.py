"""`make deploy-test`: the image and the units of systemd, really run on a Debian of their own.

All begins with one root file system (`base.py`). From it an image is built by the Dockerfile and
run (`image.py`); then what was installed in the image is put into the root, which is booted with
its own systemd (`machine.py`). Needs Linux, root, and Debian's packages mmdebstrap, buildah, runc
and systemd-container. Plain `pytest` leaves this folder out.
"""
