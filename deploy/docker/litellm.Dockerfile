# LiteLLM in the version that this project is tested with, for compose.yaml.
FROM python:3.11-slim
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
COPY constraints.txt /tmp/constraints.txt
# Its version is in the constraints.
# hadolint ignore=DL3013
RUN pip install 'litellm[proxy]' -c /tmp/constraints.txt \
    && useradd --system --uid 10002 --create-home litellm
USER 10002
WORKDIR /home/litellm
EXPOSE 4000
ENTRYPOINT ["litellm"]
CMD ["--config", "/etc/litellm/config.yaml", "--port", "4000"]
