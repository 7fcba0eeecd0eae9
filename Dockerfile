# syntax=docker/dockerfile:1
# Three images: `serve` runs a deployment on a GPU host, `cpu` rehearses one without a GPU, `openai` speaks the OpenAI
# API in front of either.
# The defaults are those of the default TensorRT-LLM profile; a test holds them equal.
ARG TRITON_TAG=26.07
ARG TENSORRT_LLM=1.2.1
ARG PYTHON_TAG=3.12-slim-bookworm

FROM python:${PYTHON_TAG} AS install
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY build build
COPY trt_spec trt_spec
RUN python3 -m venv /opt/trtspec \
 && /opt/trtspec/bin/pip install --no-cache-dir '.[local,client]'

FROM python:${PYTHON_TAG} AS cpu
LABEL org.opencontainers.image.title="trtspec rehearsal on a CPU" \
      org.opencontainers.image.description="trtspec with Triton's CPU server: plan, build, deploy, serve and verify backend onnx" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=install /opt/trtspec /opt/trtspec
RUN useradd --create-home --uid 1000 trtspec \
 && install --directory --owner=trtspec --group=trtspec /work
# The environment comes first: Triton starts its models with the python3 it finds.
ENV PATH=/opt/trtspec/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    HTTP_PORT=8000
USER 1000:1000
WORKDIR /work
EXPOSE 8000 8001 8002
HEALTHCHECK --interval=10s --timeout=10s --start-period=180s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['HTTP_PORT'] + '/v2/health/ready', timeout=9)"]
ENTRYPOINT ["trtspec"]
CMD ["--help"]

FROM python:${PYTHON_TAG} AS install-openai
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY build build
COPY trt_spec trt_spec
RUN python3 -m venv /opt/trtspec \
 && /opt/trtspec/bin/pip install --no-cache-dir '.[openai]'

FROM python:${PYTHON_TAG} AS openai
LABEL org.opencontainers.image.title="trtspec OpenAI endpoint" \
      org.opencontainers.image.description="The OpenAI API in front of a Triton that serves a repository of trtspec" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=install-openai /opt/trtspec /opt/trtspec
ENV PATH=/opt/trtspec/bin:${PATH} \
    PYTHONDONTWRITEBYTECODE=1 \
    TRTSPEC_OPENAI_HOST=0.0.0.0 \
    TRTSPEC_OPENAI_PORT=9000
USER 1000:1000
WORKDIR /tmp
EXPOSE 9000
HEALTHCHECK --interval=10s --timeout=10s --start-period=30s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['TRTSPEC_OPENAI_PORT'] + '/health', timeout=9)"]
ENTRYPOINT ["python3", "-m", "trt_spec.openai"]
CMD ["--help"]

# A deployment brings its own code, so NVIDIA's image needs nothing more: the workspace is mounted, not copied.
# That the image serves as this user was not tried here; Triton's own build gives the id 1000 to triton-server.
FROM nvcr.io/nvidia/tritonserver:${TRITON_TAG}-trtllm-python-py3 AS serve
ARG TRITON_TAG
ARG TENSORRT_LLM
LABEL org.opencontainers.image.title="trtspec deployment" \
      org.opencontainers.image.description="Speculative decoding with draft and target engines on Triton" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.base.name="nvcr.io/nvidia/tritonserver:${TRITON_TAG}-trtllm-python-py3" \
      trtspec.tensorrt-llm="${TENSORRT_LLM}"
ENV HOME=/tmp \
    HF_HUB_OFFLINE=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    HTTP_PORT=8000
USER 1000:1000
WORKDIR /tmp
EXPOSE 8000 8001 8002
# Reading the engines takes as long as the disk takes.
HEALTHCHECK --interval=10s --timeout=10s --start-period=3600s --retries=3 \
    CMD ["python3", "-c", "import os, urllib.request as u; u.build_opener(u.ProxyHandler({})).open('http://127.0.0.1:' + os.environ['HTTP_PORT'] + '/v2/health/ready', timeout=9)"]
CMD ["bash", "/models/compose/launch.sh"]
