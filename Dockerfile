# scorestream in one image: `docker build --build-arg EXTRA=gpu .` for NVIDIA GPUs, `cpu` otherwise.
# BASE: any image with Python 3.11 or newer as python3, and its venv module.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ARG EXTRA=cpu
WORKDIR /src
RUN python3 -m venv /opt/scorestream
ENV PATH=/opt/scorestream/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The pinned requirements first: they stay in the build cache while the sources change.
COPY deploy/requirements/${EXTRA}.txt requirements.txt
RUN python3 -m pip install --require-hashes -r requirements.txt
COPY pyproject.toml README.md ./
COPY model_registry model_registry
COPY publisher publisher
COPY scorer scorer
# Without pip and the build backend, which nothing needs at run time.
RUN python3 -m pip install --no-deps --no-build-isolation . \
    && python3 -m compileall -q /opt/scorestream \
    && python3 -m pip uninstall -y hatchling editables pip

FROM ${BASE}
LABEL org.opencontainers.image.title="scorestream" \
      org.opencontainers.image.description="Streaming, real-time model serving on Kafka: exactly once" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /opt/scorestream /opt/scorestream
ENV PATH=/opt/scorestream/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /srv/scorestream
USER 10001:10001
ENTRYPOINT ["scorer"]
CMD ["--help"]
