# The proxy alone:
#   docker build -t mlx-stack-proxy .
# Any Python from 3.11 on; all dependencies have wheels for amd64 and arm64.
ARG PYTHON=3.13
# Any image with a `python` that has venv.
ARG BASE=python:${PYTHON}-slim

FROM ${BASE} AS build
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python -m venv /opt/proxy
# What changes seldom first: the dependencies, as the project is tested with them.
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY deploy/docker/dependencies.py ./deploy/docker/
RUN python deploy/docker/dependencies.py pyproject.toml > requirements.txt \
    && /opt/proxy/bin/pip install --no-compile -r requirements.txt -c constraints.txt
COPY app ./app
COPY deploy ./deploy
RUN /opt/proxy/bin/pip install --no-compile --no-deps . \
    && /opt/proxy/bin/python -m compileall -q -j 0 /opt/proxy/lib \
    && /opt/proxy/bin/pip uninstall --yes --quiet pip

FROM ${BASE}
# A user that has only a number: no name can be taken in the base, and Kubernetes sees that it isn't
# root. All that is written lies in /data.
RUN install --directory --owner 10001 --group 10001 --mode 0700 /data
COPY --from=build /opt/proxy /opt/proxy
COPY deploy/docker/healthcheck.py /opt/healthcheck.py
ENV PATH=/opt/proxy/bin:$PATH \
    HOME=/data \
    PYTHONDONTWRITEBYTECODE=1 \
    MLX_STACK_SERVER__HOST=0.0.0.0 \
    MLX_STACK_STATE__PATH=/data/reliability.db
USER 10001:10001
WORKDIR /data
VOLUME /data
EXPOSE 4100
# More than server.shutdown_grace_seconds is up to `docker stop --time`, `stop_grace_period`.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s CMD ["python", "/opt/healthcheck.py"]
# The process itself is number 1, and takes SIGTERM: no shell stands before it.
ENTRYPOINT ["mlx-stack-proxy"]
CMD ["serve"]
