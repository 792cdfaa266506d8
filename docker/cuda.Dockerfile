# AACO for NVIDIA GPUs:
#   docker build -f docker/cuda.Dockerfile -t aaco:cuda .
#   docker run --rm --gpus all -v "$PWD:/data" --user "$(id -u):$(id -g)" aaco:cuda run resnet50 --backend cuda
ARG BASE=nvidia/cuda:13.0.0-cudnn-runtime-ubuntu24.04

FROM ${BASE} AS python
# The base image's own release of Ubuntu fixes the versions; an exact one would be gone from its archive in weeks.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*

FROM python AS build
WORKDIR /src
RUN python3 -m venv /opt/aaco
COPY docker/cuda.lock docker/cuda.lock
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/aaco/bin/pip install --require-hashes --requirement docker/cuda.lock
COPY . .
RUN --mount=type=cache,target=/root/.cache/pip \
    /opt/aaco/bin/pip install --no-deps --no-build-isolation .

FROM python
RUN useradd --uid 10001 --home-dir /data --create-home --shell /usr/sbin/nologin aaco
COPY --from=build /opt/aaco /opt/aaco
ENV PATH=/opt/aaco/bin:$PATH \
    HOME=/data \
    AACO_CACHE_DIR=/data/.cache/aaco \
    PYTHONDONTWRITEBYTECODE=1 \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility
USER 10001:10001
WORKDIR /data
EXPOSE 8501 8502
STOPSIGNAL SIGINT
ENTRYPOINT ["aaco"]
CMD ["--help"]
