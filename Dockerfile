# scorestream in one image, with the commands scorer, publisher and model-registry.
# EXTRA: cpu, or gpu for NVIDIA cards. BASE: any image with Python 3.11 or newer as python3, and its venv module.
# The target `training` has the libraries of `scorer train` as well, on a BASE of Debian. EXTRA: training, or network for networks too.
ARG BASE=python:3.13-slim

FROM ${BASE} AS build
ARG EXTRA=cpu
WORKDIR /src
RUN python3 -m venv /opt/scorestream
ENV PATH=/opt/scorestream/bin:$PATH PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
# The pinned requirements first: they stay in the build cache while the sources change.
COPY deploy/requirements/${EXTRA}.txt requirements.txt
RUN python3 -m pip install --require-hashes -r requirements.txt
# A compiler for the native scanner, from the package index too: the base has none.
COPY deploy/requirements/compiler.txt compiler.txt
RUN python3 -m pip install --require-hashes -r compiler.txt
COPY pyproject.toml README.md LICENSE ./
COPY model_registry model_registry
COPY publisher publisher
COPY scorer scorer
COPY deploy/training deploy/training
# The wheel, built and installed; then without pip, build backend and compiler, which nothing needs at run time.
RUN python3 -m hatchling build --target wheel --directory /wheel \
    && python3 -m pip install --no-deps /wheel/*.whl \
    && python3 -m compileall -q /opt/scorestream \
    && python3 -m pip uninstall -y hatchling editables pathspec pluggy tomlkit trove-classifiers ziglang \
    && python3 -m pip check \
    && python3 -m pip uninstall -y pip

# The locale by which models of text (TF-IDF pipelines) change its case, under both names that exporters write. A base without
# apt-get has the locales that it has.
# hadolint ignore=DL3008
RUN mkdir -p /usr/lib/locale \
    && if command -v apt-get; then \
        apt-get update \
        && DEBIAN_FRONTEND=noninteractive apt-get install --yes --no-install-recommends locales \
        && rm -rf /var/lib/apt/lists/* \
        && localedef --no-archive -i en_US -f UTF-8 /usr/lib/locale/en_US.UTF-8 \
        && localedef --no-archive -i en_US -f UTF-8 /usr/lib/locale/en_US; \
    fi

# What is in it, from what is really installed: a CycloneDX bill of materials. The tool itself stays out of the image.
FROM build AS bill-of-materials
COPY deploy/requirements/sbom.txt sbom.txt
RUN python3 -m venv /opt/sbom \
    && /opt/sbom/bin/pip install --require-hashes -r sbom.txt \
    && /opt/sbom/bin/cyclonedx-py environment --pyproject pyproject.toml --mc-type application --output-reproducible \
        --of JSON -o /sbom.cdx.json /opt/scorestream/bin/python3

FROM ${BASE} AS image
ARG VERSION=unknown
ARG REVISION=unknown
ENV SCORESTREAM_REVISION=${REVISION}
LABEL org.opencontainers.image.title="scorestream" \
      org.opencontainers.image.description="Streaming, real-time model serving on Kafka: exactly once" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /opt/scorestream /opt/scorestream
COPY --from=build /usr/lib/locale /usr/lib/locale
COPY --from=bill-of-materials /sbom.cdx.json /usr/share/scorestream/sbom.cdx.json
# Everything written goes below the two folders that may be mounted writable: the cache of model versions, and /tmp.
ENV PATH=/opt/scorestream/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/tmp XDG_CACHE_HOME=/var/cache/scorestream
WORKDIR /etc/scorestream
USER 10001:10001
CMD ["scorer", "--help"]

FROM image AS training
USER 0:0
# LightGBM's wheel has no OpenMP runtime of its own. Its version is the base's to choose.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends libgomp1 \
    && rm -rf /var/lib/apt/lists/*
# The package `training` for PYTHONPATH of torchrun, at a path without the version of Python.
RUN ln -s "$(python3 -c 'from scorer.commands import train; print(train.FOLDERS[0])')" /opt/scorestream/deploy
USER 10001:10001
CMD ["scorer", "train", "--help"]

# What a build without a target makes: the last stage.
FROM image
