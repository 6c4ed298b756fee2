"""Words for sample documents, the frequent ones first, and the parts that rare words are made of.

Texts about films, research, law and everyday things: what long documents are made of.
"""

from __future__ import annotations

#: Function words in the order in which English uses them, roughly.
FUNCTION = """
the of and to a in that is was it for with as on be at by this had not are but from or have an
they which one were all we when who will more if no out so what up into than them can only other
some could these two may then do first any my now such like our over even most after also through
where before must between both under never while last against without however within during since
until among though rather whether upon toward because although despite
"""

NOUNS = """
time year people way day man thing woman life child world school state family student group country
problem hand part place case week company system program question work number night point home
water room mother area money story fact month lot right study book eye job word business issue side
kind head house service friend father power hour game line end member law car city community name
team minute idea body information back parent face level office door health person art war history
party result change morning reason research girl moment air teacher force education film scene actor
director script audience camera picture sequel dialogue plot performance character comedy drama
thriller soundtrack ending cast studio screen cinema hero villain romance humour remake budget
protein cell gene neuron tissue membrane sample experiment mouse species population temperature
response growth model analysis method data signal pathway mutation enzyme receptor sequence genome
brain cortex stimulus behaviour larva embryo antibody concentration expression structure binding
hypothesis variance measurement protocol estimate contract party clause agreement obligation
liability court judgment evidence plaintiff defendant statute appeal notice payment damages tenant
landlord warranty insurance property claim provision schedule termination jurisdiction counsel
witness tribunal regulation compliance river mountain forest village bridge harbour garden kitchen
window table letter newspaper engine machine railway station market factory farmer doctor engineer
captain soldier painter musician novel poem chapter paragraph sentence language dictionary archive
library museum weather storm winter summer autumn spring frost harvest bread butter onion vinegar
"""

VERBS = """
said made went took came saw knew got gave found thought told became showed left felt put brought
began kept held wrote stood heard let meant set met ran paid sat spoke lay led read grew lost fell
sent built understood drew broke spent cut rose drove bought wore chose asked needed seemed tried
called worked used wanted looked turned moved lived believed happened carried provided included
continued learned changed watched followed stopped created allowed added opened walked offered
remembered considered appeared served died expected stayed reached remained suggested raised passed
required reported decided pulled returned explained hoped developed described observed measured
demonstrated revealed indicated increased reduced compared analysed predicted confirmed performed
directed acted filmed edited terminated enforced amended disputed granted dismissed established
"""

ADJECTIVES = """
good new first last long great little own other old right big high different small large next early
young important few public bad same able whole free common poor certain recent clear open full
special strong difficult likely human local sure simple short hard easy natural serious single
personal current ready general private past foreign dark various entire close legal final main
green nice huge popular traditional cultural quiet dull predictable brilliant clumsy moving tender
slow funny awful beautiful honest shallow clever tedious significant molecular cellular neural
robust specific visual spatial genetic statistical independent reasonable liable applicable
reciprocal binding exclusive material prior written express wooden heavy warm cold bitter sweet
"""

ADVERBS = """
very just well still too again always often really quite almost already once perhaps ever soon
usually finally quickly simply clearly probably certainly recently directly nearly suddenly slowly
particularly significantly approximately respectively previously subsequently materially hereby
"""

NAMES = """
Anna Martin Elena Thomas Ingrid Samuel Clara Viktor Amara Hugo Leonie Rafael Mireille Tobias Nadia
Hartwell Lindqvist Okafor Brennan Castellano Whitmore Delacroix Ashdown Vasquez Petersen Moreau
Northgate Riverside Kingsbridge Aldershaw Montclair Westhaven
"""

#: Rare words are a stem with what may stand before and after it.
PREFIXES = ("", "", "", "un", "re", "inter", "over", "sub", "trans", "counter", "micro", "hyper")
STEMS = """
form port scrib struct vert spect duc fer mit pon ten vol cap press mot vis crypt graph morph phon
therm neur cardi derm lith chrom phyl gen path plas nucle synap glyc lip hydr carb fluor sect tract
"""
SUFFIXES = """
ation ative ational ment ive or able ibility ular osis ase ogenesis ology ometric ically ness ship
"""
