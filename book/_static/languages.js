window.LANGUAGES = [];  // book/build.py writes here which other languages have been built
