"""A whole training on one page, in MindSpore's own calls: ResNet-20 learns to read digits.

    python labs/cifar10/plain.py    # less than a minute on two cores; writes ./plain.ckpt

`labkit train cifar10 --profile sample` is the same training, to the last bit. It takes its
settings from recipe.yaml, and also evaluates every epoch, keeps records, and can resume.
"""

# The course's own parts. They come first, because labkit sets environment variables that
# MindSpore reads when it is imported.
from labkit import schedules
from labkit.data.cifar10_files import FOLDER, MEAN, STD, read, write_sample
from labkit.losses import CrossEntropySmooth
from labkit.networks import create_resnet, use_fast_gradients
from labkit.optimizers import decay_groups
from labkit.system.environment import data_root
from labkit.training.callbacks import PerformanceCallback

# isort: split
import mindspore as ms
import mindspore.dataset as ds
from mindspore import Tensor, nn
from mindspore.dataset import transforms, vision
from mindspore.train import LossMonitor, Model

epochs = 4  # passes over all training images; photographs need 30 or more, digits are easy
batch_size = 64  # images per step; small, so that 1,437 images still give 22 steps an epoch
lr_max = 0.1  # the highest learning rate; this one and the next two are He et al.'s (2015)
momentum = 0.9  # a step follows the last ten gradients or so, which evens out their noise
weight_decay = 1e-4  # each step pulls the weights a little towards 0, against overfitting
lr_init = 0.02  # the first learning rate, low: large steps can ruin random weights
warmup_epochs = 1  # to rise from lr_init to lr_max; then the rate falls, and weights settle

ms.set_context(mode=ms.GRAPH_MODE)  # compile a step once and run it whole, which is fast
ms.set_seed(1)  # for the initial weights; any number will do, and the same one repeats them
ds.config.set_seed(1)  # for the data: the order of the images, and how each is shifted
ds.config.set_num_parallel_workers(1)  # threads; another number draws other random shifts

# -- Data: scikit-learn's digits, enlarged to 32x32, in CIFAR-10's format ------------------

folder = data_root() / "sample" / FOLDER
if not folder.exists():
    write_sample(folder)  # takes a second, and needs no network

# Augmentation: add a border of 2 black pixels and cut out 32x32 at random, so that every
# epoch sees a digit in another place. It is not mirrored: a mirrored 2 is not a digit.
shift = vision.RandomCrop(32, padding=2)
# Subtract a mean from each colour and divide by a deviation: networks train best on values
# around 0. CIFAR-10's values do for digits too; they are for colours from 0 to 1, not 255.
normalize = vision.Normalize([255 * m for m in MEAN], [255 * s for s in STD])
to_chw = vision.HWC2CHW()  # colours first, (3, 32, 32): the order that convolutions expect
to_int32 = transforms.TypeCast(ms.int32)  # labels are stored as bytes; the loss wants int32

# read() returns images (N, 32, 32, 3) and labels (N,), which become two columns with names.
# map() applies operations to a column, one image or label at a time.
train_data = ds.NumpySlicesDataset(read(folder, "train"), ["image", "label"], shuffle=True)
train_data = train_data.map([shift, normalize, to_chw], "image").map(to_int32, "label")
# Drop the short batch at the end of an epoch: another shape would be compiled again.
train_data = train_data.batch(batch_size, drop_remainder=True)
steps_per_epoch = train_data.get_dataset_size()

test_data = ds.NumpySlicesDataset(read(folder, "test"), ["image", "label"], shuffle=False)
test_data = test_data.map([normalize, to_chw], "image").map(to_int32, "label")
test_data = test_data.batch(120)  # three equal batches of the 360 images; none is dropped

# -- Network, loss, optimizer -------------------------------------------------------------

# The smallest of He et al.'s networks for CIFAR-10, with 20 layers. The first, its stem,
# keeps 32x32 pixels; the stem for ImageNet's large photographs would leave 8x8.
net = create_resnet("resnet20", num_classes=10, stem="cifar")
if ms.get_context("device_target") == "CPU":
    use_fast_gradients(net)  # of convolutions: the same up to rounding, in less time

# The mean of -log(probability of the true class). Label smoothing, which asks for a little
# less than certainty, is off: it is for long trainings.
loss = CrossEntropySmooth(num_classes=10, smoothing=0.0)

# An array with the learning rate of each step: a linear rise, then a quadratic fall to 0.
# The optimizer counts its steps and looks up the rate of each.
lr = schedules.quadratic(
    epochs, steps_per_epoch, lr_init, lr_max, lr_end=0.0, warmup_epochs=warmup_epochs
)
# Batch norm's parameters and the biases do not decay: they are few and do not overfit.
groups = decay_groups(net.trainable_params(), weight_decay)
optimizer = nn.Momentum(groups, Tensor(lr), momentum)

# -- Train, evaluate, save ----------------------------------------------------------------

# In each step, train() takes a batch through network and loss, computes the gradients, and
# has the optimizer change the weights. Callbacks watch; after each epoch, these two print
# the loss of its last step, and its speed in images per second.
model = Model(net, loss, optimizer, metrics={"accuracy"})
callbacks = [LossMonitor(steps_per_epoch), PerformanceCallback(batch_size)]
# Sink mode would send an accelerator whole epochs; callbacks could not follow the steps.
model.train(epochs, train_data, callbacks, dataset_sink_mode=False)

# The share of right answers to images that training has not seen; no weight changes.
accuracy = model.eval(test_data, dataset_sink_mode=False)["accuracy"]
print(f"test accuracy: {accuracy:.4f}")
ms.save_checkpoint(net, "plain.ckpt")  # weights, and batch norm's running statistics
