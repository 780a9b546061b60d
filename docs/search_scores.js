// Scores of search results: Sphinx's own numbers, with guides before pages of single names, papers and changes.
var Scorer = {
  score: ([docname, title, anchor, descr, score, filename, kind]) => {
    if (docname.startsWith("api")) return kind === "title" ? score : score / 10; // titles: the name itself is asked for
    return /^(reproduce|ablations|benchmarks|changes|contributing|architecture)/.test(docname) ? score / 3 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
