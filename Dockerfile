# The demo in a container: trains Pong, evaluates what was learned, and leaves a video in runs/demo.
#
#     docker build -t gossamer .
#     docker run --rm -it --shm-size 1g -v gossamer-runs:/gossamer/runs gossamer
#
# A training of your own, and the live page of all runs at http://127.0.0.1:6006/ while it goes on:
#
#     docker run --rm -it --shm-size 1g -v gossamer-runs:/gossamer/runs gossamer gossamer train paac --env CartPole-v1
#     docker run --rm -it -v gossamer-runs:/gossamer/runs -p 127.0.0.1:6006:6006 gossamer gossamer watch runs --host 0.0.0.0
#
# With CUDA, on a machine with NVIDIA's container toolkit:
#
#     docker build --build-arg TORCH_INDEX=https://download.pytorch.org/whl/cu130 -t gossamer:cuda .
#     docker run --rm -it --shm-size 1g --gpus all gossamer:cuda
FROM python:3.11-slim

ARG TORCH=torch==2.13.0
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu

RUN useradd --create-home gossamer && install -d -o gossamer /gossamer /gossamer/runs
USER gossamer
WORKDIR /gossamer
RUN python -m venv .venv
ENV PATH="/gossamer/.venv/bin:$PATH" PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1

# What changes seldom comes first: PyTorch by itself, with its own index, then the other packages.
COPY --chown=gossamer constraints.txt ./
RUN pip install -c constraints.txt --extra-index-url "$TORCH_INDEX" "$TORCH"
COPY --chown=gossamer pyproject.toml README.md LICENSE ./
COPY --chown=gossamer gossamer gossamer
RUN pip install -c constraints.txt -e ".[atari,gym,onnx]"
COPY --chown=gossamer scripts/demo.sh scripts/demo.sh

CMD ["bash", "scripts/demo.sh"]
