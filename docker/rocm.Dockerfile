# AACO for AMD GPUs, with MIGraphX and rocprofv3:
#   docker build -f docker/rocm.Dockerfile -t aaco:rocm .
#   docker run --rm --device /dev/kfd --device /dev/dri --group-add "$(stat -c %g /dev/kfd)" -v "$PWD:/data" \
#       --user "$(id -u):$(id -g)" aaco:rocm run resnet50 --backend migraphx
ARG BASE=rocm/dev-ubuntu-24.04:7.0

FROM ${BASE} AS python
# The base image's own release of Ubuntu fixes the versions; an exact one would be gone from its archive in weeks.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv migraphx rocprofiler-sdk amd-smi-lib \
    && rm -rf /var/lib/apt/lists/*

FROM python AS build
WORKDIR /src
RUN python3 -m venv /opt/aaco
COPY docker/rocm.lock docker/rocm.lock
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/aaco/bin/pip install --require-hashes --requirement docker/rocm.lock
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/aaco/bin/pip install --no-deps --no-build-isolation .

FROM python
RUN useradd --uid 10001 --home-dir /data --create-home --shell /usr/sbin/nologin aaco
COPY --from=build /opt/aaco /opt/aaco
ENV PATH=/opt/aaco/bin:/opt/rocm/bin:$PATH \
    HOME=/data \
    AACO_CACHE_DIR=/data/.cache/aaco \
    PYTHONDONTWRITEBYTECODE=1
USER 10001:10001
WORKDIR /data
EXPOSE 8501 8502
STOPSIGNAL SIGINT
ENTRYPOINT ["aaco"]
CMD ["--help"]
