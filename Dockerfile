# Serves one folder that `crossling export` wrote, as a user without privileges:
#   docker build --tag crossling .
#   docker run --read-only --tmpfs /tmp --publish 127.0.0.1:8000:8000 \
#     --volume "$PWD/ner-model:/model:ro" --env CROSSLING_TOKEN crossling
FROM python:3.11-slim

# torch's wheels for CPUs; for GPUs: --build-arg TORCH_INDEX=https://pypi.org/simple
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

# Each package is built in an environment of its own (--use-pep517): seqeval has no wheel, and the old way of building it
# lacks what its build needs.
COPY pyproject.toml constraints.txt README.md LICENSE /build/
COPY src /build/src
RUN pip install --no-cache-dir --index-url "$TORCH_INDEX" "$(grep '^torch==' /build/constraints.txt)" \
    && pip install --no-cache-dir --use-pep517 --constraint /build/constraints.txt '/build[serve]' \
    && rm -r /build \
    && useradd --system --uid 10001 --no-create-home --shell /usr/sbin/nologin crossling

# Nothing is downloaded or written while it serves.
ENV HF_HUB_OFFLINE=1 HOME=/tmp PYTHONDONTWRITEBYTECODE=1 PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8000
HEALTHCHECK --start-period=60s --interval=15s --timeout=5s \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["crossling", "serve", "--host", "0.0.0.0"]
CMD ["/model"]
