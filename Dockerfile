# revbis on a CPU, with OpenGL for off-screen rendering.
#   docker build -t revbis .
#   docker run --rm revbis doctor
#   docker run --rm -v "$PWD/runs:/work/runs" revbis train --task dmc:cartpole_balance --method simsr-rev
# A mounted folder must be writable for user 1000 (or pass --user "$(id -u)"). Where packages come from
# is pip's own setting: --build-arg PIP_INDEX_URL=... selects another index, such as one of CPU-only torch.
FROM python:3.11-slim-bookworm AS build

ARG PIP_INDEX_URL
ARG PIP_EXTRA_INDEX_URL
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_CONSTRAINT=/source/constraints.txt

WORKDIR /source
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src src
RUN python -m venv /opt/revbis \
 && /opt/revbis/bin/pip install ".[dmc,metaworld,video]"

FROM python:3.11-slim-bookworm

# EGL for GPUs and Mesa, OSMesa where there is no EGL. Versions follow the release of Debian.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install -y --no-install-recommends libegl1 libgl1 libosmesa6 \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --uid 1000 revbis \
 && mkdir /work \
 && chown revbis /work

COPY --from=build /opt/revbis /opt/revbis
# Numba and matplotlib write caches; the home of another --user may not be writable.
ENV PATH=/opt/revbis/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    NUMBA_CACHE_DIR=/tmp/numba \
    MPLCONFIGDIR=/tmp/matplotlib

USER 1000
WORKDIR /work
ENTRYPOINT ["revbis"]
CMD ["--help"]
