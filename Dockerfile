# docker build --target cpu  -t longdoc .        (the default target)
# docker build --target cuda -t longdoc:cuda .
#
# docker run --read-only -p 8000:8000 longdoc
# docker run --read-only -p 8000:8000 --gpus all longdoc:cuda

FROM python:3.11-slim AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/longdoc
ENV PATH=/opt/longdoc/bin:$PATH
WORKDIR /src
# Dependencies first: they change less often than the code.
COPY pyproject.toml constraints.txt README.md LICENSE longdoc.py ./
RUN mkdir service models training export benchmarks dashboard loadtests \
    && pip install --constraint constraints.txt . \
    && pip uninstall --yes longdoc
COPY . .
RUN pip install --no-deps --constraint constraints.txt . \
    && pip uninstall --yes pip setuptools

# CUDA and cuDNN come as packages; the service finds their libraries wherever pip put them.
FROM build AS build-cuda
RUN python -m ensurepip \
    && python -m pip uninstall --yes onnxruntime \
    && python -m pip install 'onnxruntime-gpu[cuda,cudnn]>=1.22' \
    && python -m pip uninstall --yes pip setuptools

FROM python:3.11-slim AS base
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin longdoc
ENV PATH=/opt/longdoc/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    LONGDOC_BUNDLES=/bundles \
    LONGDOC_HOST=0.0.0.0 \
    LONGDOC_LOG_FORMAT=json
COPY bundles /bundles
USER 10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s --retries=3 \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f'http://127.0.0.1:{os.environ.get(\"LONGDOC_PORT\", 8000)}/readyz', timeout=2)"]
ENTRYPOINT ["longdoc"]
CMD ["serve"]

FROM base AS cuda
COPY --from=build-cuda /opt/longdoc /opt/longdoc
ENV NVIDIA_VISIBLE_DEVICES=all \
    NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM base AS cpu
COPY --from=build /opt/longdoc /opt/longdoc
