# The workspaced server. The base needs Python >= 3.11 with the venv module; any Debian-like image will do:
#   docker build --build-arg BASE_IMAGE=python:3.12-slim --tag workspaced .
# Where packages come through a proxy or a registry with a certificate authority of its own, use a base that trusts it.
ARG BASE_IMAGE=python:3.11-slim

FROM ${BASE_IMAGE} AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1 PYTHONDONTWRITEBYTECODE=1
RUN python3 -m venv /opt/workspaced
WORKDIR /source
COPY requirements/server.lock requirements/
RUN /opt/workspaced/bin/pip install --no-deps --require-hashes --requirement requirements/server.lock
COPY LICENSE README.md pyproject.toml ./
COPY clients/python clients/python
COPY service service
RUN /opt/workspaced/bin/pip install --no-deps --no-build-isolation ./clients/python . \
    && /opt/workspaced/bin/pip uninstall --yes hatchling pip setuptools \
    && /opt/workspaced/bin/python -m compileall -q /opt/workspaced/lib

FROM ${BASE_IMAGE}
LABEL org.opencontainers.image.title="workspaced" org.opencontainers.image.licenses="Apache-2.0"
RUN groupadd --gid 7420 workspaced \
    && useradd --uid 7420 --gid 7420 --no-log-init --home-dir /var/lib/workspaced --shell /usr/sbin/nologin workspaced \
    && install -d -o workspaced -g workspaced -m 0700 /var/lib/workspaced
COPY --from=build /opt/workspaced /opt/workspaced
COPY deploy/healthcheck.py /opt/workspaced/healthcheck.py
ENV PATH=/opt/workspaced/bin:/usr/local/bin:/usr/bin:/bin PYTHONUNBUFFERED=1 WORKSPACED_STATE_DIR=/var/lib/workspaced
USER 7420:7420
WORKDIR /var/lib/workspaced
VOLUME /var/lib/workspaced
EXPOSE 7420
# SIGTERM drains: new calls are refused, long streams end so that clients resume elsewhere.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=15s --timeout=5s --start-period=20s --retries=3 CMD ["python", "/opt/workspaced/healthcheck.py"]
ENTRYPOINT ["workspaced"]
# Listens on the container's loopback until told otherwise: any other address wants TLS and authentication.
CMD ["serve"]
